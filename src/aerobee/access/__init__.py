"""Who may do what: users, their rights, signatures, and the one table of what each request needs.

Brokers and name servers ask `guard` before any handler. With access control off none of this is in the way of a
request. What other front ends ask is in `door`: `Access.authenticate` and `Access.authorize`.
"""
