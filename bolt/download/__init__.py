"""Downloads over HTTP and from S3 buckets: resumed, verified, and complete or absent."""
