"""The Python client and worker of a Hopline mesh."""
