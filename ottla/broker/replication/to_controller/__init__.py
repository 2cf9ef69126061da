"""Reports of leaders and replicas to the active controller: in few requests, which are retried until there is a response."""
