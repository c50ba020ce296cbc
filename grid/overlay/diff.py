"""What changed between two documents, in the sentences an operator reads."""
