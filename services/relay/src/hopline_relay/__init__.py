"""The relay: messages, threads, sessions, turns, debts, tunnels, audit."""
