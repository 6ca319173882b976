"""What the command line can do; nothing here prints or exits."""
