"""The files that people write for the mesh and get from it, the same for the command and the console."""
