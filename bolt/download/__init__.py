"""Downloads over HTTP and from S3 buckets: verified, and complete or absent."""
