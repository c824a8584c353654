"""What is looked into before a kernel may enter the library, and not for every candidate."""
