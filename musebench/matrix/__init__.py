"""The cross product of choices, each run in a process of its own; resumable, nothing run twice."""
