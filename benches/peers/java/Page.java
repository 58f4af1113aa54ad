import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The server of the experiment "a page that sometimes waits", on the JDK's own HTTP server: a fixed pool of threads,
 * which sleep, read the file and write. It prints its address, and at the end the number of its answers.
 */
final class Page {
    private static final AtomicLong COUNT = new AtomicLong();
    private static final AtomicLong ANSWERED = new AtomicLong();

    private Page() {}

    public static void main(String[] words) throws IOException {
        Map<String, String> flags = new HashMap<>(Map.of(
                "--listen", "127.0.0.1:0", "--workers", "100", "--page-every", "10", "--page-wait", "2000ms"));
        boolean untilStdinEnds = false;
        for (String word : words) {
            if (word.equals("--until-stdin-ends")) {
                untilStdinEnds = true;
                continue;
            }
            String[] pair = word.split("=", 2);
            if (pair.length != 2 || !(flags.containsKey(pair[0]) || pair[0].equals("--page-file"))) {
                System.err.println(word + " is not known");
                System.exit(2);
            }
            flags.put(pair[0], pair[1]);
        }
        Path file = Path.of(flags.getOrDefault("--page-file", ""));
        Files.readAllBytes(file); // fail early if the file cannot be read
        long every = Long.parseLong(flags.get("--page-every"));
        long wait = Long.parseLong(flags.get("--page-wait").replaceFirst("ms$", ""));
        String[] listen = flags.get("--listen").split(":");

        HttpServer server =
                HttpServer.create(new InetSocketAddress(listen[0], Integer.parseInt(listen[1])), 1024);
        server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(flags.get("--workers"))));
        server.createContext("/", exchange -> answer(exchange, file, every, wait));
        // The hook runs on SIGINT, SIGTERM and System.exit. It halts, because after a signal the JVM does not exit with
        // code 0.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            System.out.println("{\"answered\":" + ANSWERED.get() + "}");
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }));
        server.start();
        System.out.println("listening on http://" + listen[0] + ":" + server.getAddress().getPort());
        System.out.flush();
        if (untilStdinEnds) {
            Thread input = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {}
                } catch (IOException ended) {
                    // An error also ends the input.
                }
                System.exit(0);
            });
            input.setDaemon(true);
            input.start();
        }
    }

    private static void answer(HttpExchange exchange, Path file, long every, long wait) throws IOException {
        long nth = COUNT.incrementAndGet();
        try (exchange) {
            if (every > 0 && nth % every == 0) {
                Thread.sleep(wait);
            }
            byte[] page = Files.readAllBytes(file);
            exchange.getResponseHeaders().set("Content-Type", "text/html; charset=utf-8");
            exchange.getResponseHeaders().set("Connection", "close");
            exchange.sendResponseHeaders(200, page.length);
            exchange.getResponseBody().write(page);
            ANSWERED.incrementAndGet();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
