"""Kinds of messages between workers."""

REPLY, FAILED = 1, 2
# With an answer:
CALL, REMOTE, FETCH, VISIT, RUN, JOIN = 10, 11, 12, 13, 14, 15
# Without:
FORKED, CONFIRMED, ACCEPTED, DELETED = 20, 21, 22, 23
GRADS, ENDED, FORGET = 24, 25, 26
