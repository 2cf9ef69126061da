"""The transaction coordinator: transactional ids, their transactions, and the markers that end them (KIP-98, KIP-890)."""
