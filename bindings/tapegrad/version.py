"""The version, and what the package was built with."""


cuda = None
hip = None
debug = False
