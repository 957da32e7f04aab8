"""The dashboard: a web server of its own beside a cluster, a client of the functions in `aerobee.admin`.

`serve.py` is the root. `web.py` turns HTTP requests into calls of pages and actions. `collector.py` asks the brokers in
the background, so that lists cost no request. `security.py` holds sessions, tokens, roles and throttling.

How a page is added: write a function in `pages/` that returns a `WebPage` of blocks (`blocks.py`), and give it a path:

    @page("/topics/{topic}", title="Topic", menu=None)
    async def topic(view: PageView) -> WebPage:
        details = await topic_details(view.admin, view.path["topic"])
        return WebPage(f"Topic {details.topic}", [Facts("Topic", [("messages", details.messages)])])

The same page exists as JSON under `/api/topics/{topic}`: it is made of the same blocks. A list with many rows uses
`paging.table_of`, which filters, sorts and cuts before it makes cells. A page never loops over brokers by itself: the
admin functions do, and `view.admin` gives each broker one deadline for the whole page.

A change is a `WebAction`: fields, a plan, and a run. A GET shows the form and, once it is filled, the plan; it changes
nothing. A POST with the token runs it and shows what was done. One template shows all of them:

    @action("/topics/{topic}/delete", title="Delete a topic", role=Role.admin, named=lambda view: view.path["topic"])

Import the module in `pages/__init__.py`. `tests/e2e/test_dashboard_roles.py` then asks for every action as every role.
"""
