"""Everything that remembers: row schemas, packed keys, reservoirs, circular buffers and their shards."""
