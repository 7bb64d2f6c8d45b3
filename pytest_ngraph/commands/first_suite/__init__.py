"""What ``ngraph init`` finds in a project and writes into it."""
