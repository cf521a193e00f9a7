"""What plugins, and the mesh itself, see and shape on its way: which hooks there are, how they are run."""
