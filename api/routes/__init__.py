"""The JSON interface under `/v1`, one file a resource. Routes parse, call one function, return."""
