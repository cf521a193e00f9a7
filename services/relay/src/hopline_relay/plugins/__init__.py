"""What plugins have to do with sessions: how they are called, what they were handed, what they contribute."""
