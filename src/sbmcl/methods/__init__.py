"""Methods: ways of holding a state. One file an idea; all obey the protocol in `base`."""
