"""Tasks in several processes: the wire format, links between processes, and the transport that carries messages."""
