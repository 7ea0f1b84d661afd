"""Names of the parts of a record, which are its columns."""

KEY, NAMESPACE, USER_KEY, TIMESTAMP, VALUE = "key", "namespace", "user_key", "timestamp", "value"
