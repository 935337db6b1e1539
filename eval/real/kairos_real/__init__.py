"""The real-effect suite: coding agents on real files and a real network, and witnesses outside who say what happened."""
