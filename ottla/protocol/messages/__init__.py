"""One file per API, named as the API; each holds the request, the response and their structs for all versions.

Structs that several APIs have in common, to the letter, are in shared_structs.py and quorum_structs.py; Kafka has them
once in each message, under several names (tests/protocol/test_messages.py lists these).
"""
