"""Requests to brokers: one function per request, to one address.

Each function takes `ask`, which sends a command to an address within the gateway's time limit, and
returns plain values or raises the errors of `console.gateway.errors`. Wire-level keys stay in this
package.

Source: tools/admin/DefaultMQAdminExtImpl.java, client/impl/MQClientAPIImpl.java (4.9.8).
"""
