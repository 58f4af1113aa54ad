import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** The requests of ci/clients.sh by Java's HttpClient: java Client.java URL CA */
public class Client {
    private static final int MIB = 1 << 20;
    private static HttpClient client;
    private static String url;

    /** The JSON of an entity of this number of bytes, at least. */
    private static String entity(int id, int length) {
        String text = "{\"id\":" + id + ",\"description\":\"%s\",\"value\":1.5}";
        return String.format(text, "x".repeat(Math.max(15, length - (text.length() - 2))));
    }

    private static HttpResponse<String> ask(String method, String path, int status, String body, String tag)
            throws Exception {
        var publisher = body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body);
        var request = HttpRequest.newBuilder(URI.create(url + path))
                .method(method, publisher)
                .header("Content-Type", "application/json")
                .timeout(Duration.ofSeconds(20));
        if (tag != null) {
            request.header("If-None-Match", tag);
        }
        var answer = client.send(request.build(), BodyHandlers.ofString());
        if (answer.statusCode() != status) {
            throw new Exception(method + " " + path + ": " + answer.statusCode() + " instead of " + status);
        }
        return answer;
    }

    public static void main(String[] args) throws Exception {
        url = args[0];
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = Files.newInputStream(Path.of(args[1]))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        client = HttpClient.newBuilder().sslContext(context).connectTimeout(Duration.ofSeconds(20)).build();

        ask("PUT", "/", 201, entity(401, 0), null);
        var answer = ask("GET", "/401", 200, null, null);
        if (!answer.body().equals(entity(401, 0))) {
            throw new Exception("the entity: " + answer.body());
        }
        ask("GET", "/401", 304, null, answer.headers().firstValue("ETag").orElseThrow());
        ask("PUT", "/", 201, entity(402, MIB), null);
        ask("DELETE", "/402", 204, null, null);
        ask("DELETE", "/401", 204, null, null);
        ask("GET", "/401", 404, null, null);
        try {
            ask("PUT", "/", 413, entity(403, MIB + 1), null);
        } catch (java.io.IOException early) {
            // This client gives up a request if the connection closes while it sends the body, and does not read the answer.
            System.out.println("Java: a refused body is an error of the connection: " + early.getMessage());
        }
    }
}
