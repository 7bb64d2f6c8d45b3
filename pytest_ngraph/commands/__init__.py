"""The commands of ``ngraph``, one module each: ``add`` gives a command its parser, and the parser knows what to run."""
