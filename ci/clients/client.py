"""The requests of ci/clients.sh by Python's http.client, and by requests if it is installed: client.py URL CA"""
import http.client
import json
import ssl
import sys
import urllib.parse

url, ca = sys.argv[1:3]
address = urllib.parse.urlsplit(url)
MIB = 1 << 20
JSON = {"Content-Type": "application/json"}


def entity(number, length=15):
    """The JSON of an entity of this number of bytes, at least."""
    frame = len(json.dumps({"id": number, "description": "", "value": 1.5}))
    return json.dumps({"id": number, "description": "x" * max(15, length - frame), "value": 1.5})


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got} instead of {wanted}")


def by_http_client():
    connection = http.client.HTTPSConnection(
        address.hostname, address.port, context=ssl.create_default_context(cafile=ca), timeout=20
    )

    def ask(method, path, status, body=None, headers=JSON):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        expect(f"{method} {path}", answer.status, status)
        return answer, content

    ask("PUT", "/", 201, entity(101))
    socket = connection.sock
    answer, content = ask("GET", "/101", 200)
    expect("the entity", json.loads(content), json.loads(entity(101)))
    ask("GET", "/101", 304, headers={"If-None-Match": answer.headers["ETag"]})
    ask("PUT", "/", 201, entity(102, MIB))
    ask("DELETE", "/102", 204)
    ask("DELETE", "/101", 204)
    ask("GET", "/101", 404)
    if socket is None or connection.sock is not socket:
        sys.exit("the connection was not kept")
    ask("PUT", "/", 413, entity(103, MIB + 1))
    connection.close()


def by_requests():
    try:
        import requests
    except ImportError:
        print("not run: Python requests is not installed")
        return
    session = requests.Session()
    session.verify, session.trust_env = ca, False

    def ask(method, path, status, **arguments):
        answer = session.request(method, url + path, timeout=20, **arguments)
        expect(f"requests: {method} {path}", answer.status_code, status)
        return answer

    ask("PUT", "/", 201, data=entity(104), headers=JSON)
    answer = ask("GET", "/104", 200)
    expect("requests: the entity", answer.json(), json.loads(entity(104)))
    ask("GET", "/104", 304, headers={"If-None-Match": answer.headers["ETag"]})
    ask("DELETE", "/104", 204)


by_http_client()
by_requests()
