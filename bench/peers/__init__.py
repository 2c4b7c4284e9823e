"""Other projects' methods on our split and original, in an environment of their own."""
