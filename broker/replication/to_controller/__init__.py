"""What a leader or a replica reports to the active controller: in few requests, repeated until they are answered."""
