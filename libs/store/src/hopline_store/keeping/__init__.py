"""Looking after databases: migrate, check, back up, restore, move to another kind."""
