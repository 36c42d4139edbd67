"""The version of the package, in a file of its own so that any module can say which nescio wrote a file."""

__version__ = "0.1.0.dev0"
