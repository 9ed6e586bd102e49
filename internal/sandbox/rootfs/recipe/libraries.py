"""Prints the libraries of libraries.txt (on stdin) that this image has: one line each, name and version."""
import importlib.metadata
import importlib.util
import sys

for line in sys.stdin:
    if line.startswith("#") or not line.strip():
        continue
    dist, module = line.split()
    if importlib.util.find_spec(module) is None:
        continue
    try:
        version = importlib.metadata.version(dist)
    except importlib.metadata.PackageNotFoundError:
        # Debian ships a few modules without their metadata; the module knows its version.
        found = importlib.import_module(module)
        version = str(getattr(found, "__version__", getattr(found, "version", "unknown")))
    print(dist, version)
