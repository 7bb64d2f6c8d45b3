"""What every test under this folder may use."""

pytest_plugins = ["pytester"]
