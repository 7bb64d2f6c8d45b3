"""What stands under the title ``ngraph`` at the end of a run."""
