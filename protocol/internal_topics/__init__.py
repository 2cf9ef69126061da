"""What internal topics, control batches and the small files of logs hold: declarations, and the frames around them."""
