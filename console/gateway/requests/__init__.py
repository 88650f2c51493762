"""What the console asks brokers: one function a request, which asks one address.

A function takes `ask`, which sends a command to an address within the gateway's time limit, and
returns plain values or raises the errors of `console.gateway.errors`. The wire's keys stay here.

Source: tools/admin/DefaultMQAdminExtImpl.java, client/impl/MQClientAPIImpl.java (4.9.8).
"""
