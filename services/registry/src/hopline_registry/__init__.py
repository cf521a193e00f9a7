"""The registry: workspaces, users, roles, agents, tokens, policies; who sees and reaches whom."""
