"""What stands around the library: the command line, traces, the alias of the module `tensorflow`."""
