// SPDX-License-Identifier: Apache-2.0

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's client, driven over standard input and output. The commands are those of
 * tests/interop/driver.py; each runs in a thread of its own, for most of them block.
 */
public final class Driver {

    private final PrintStream out;
    private final PrintStream silent = System.err;
    private final Map<String, Sender> senders = new ConcurrentHashMap<>();
    private final Map<String, Receiver> receivers = new ConcurrentHashMap<>();
    private final Map<String, Puller> pullers = new ConcurrentHashMap<>();

    private Driver(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        // The library may print; answers go to the real standard output.
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        Driver driver = new Driver(out);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line, Feature.OrderedField);
            threads.submit(() -> driver.serve(command));
        }
        // Nobody is left to be told of anything.
        Runtime.getRuntime().halt(0);
    }

    private void serve(JSONObject command) {
        JSONObject answer = new JSONObject(true);
        answer.put("id", command.get("id"));
        try {
            answer.put("result", run(command));
        } catch (Throwable problem) {
            problem.printStackTrace();
            answer.put("error", problem.toString());
        }
        print(answer);
    }

    private Object run(JSONObject command) throws Exception {
        String name = command.getString("name");
        switch (command.getString("op")) {
            case "producer":
                senders.put(name, new Sender(command));
                return null;
            case "consumer":
                receivers.put(name, new Receiver(command, this));
                return null;
            case "puller":
                pullers.put(name, new Puller(command));
                return null;
            case "stop":
                stop(name);
                return null;
            case "send":
                return senders.get(name).send(command);
            case "request":
                return senders.get(name).request(command);
            case "queues":
                return pullers.get(name).queues(command);
            case "pull":
                return pullers.get(name).pull(command);
            case "commit":
                return pullers.get(name).commit(command);
            case "committed":
                return pullers.get(name).committed(command);
            case "byKey":
                return pullers.get(name).byKey(command);
            case "byId":
                return pullers.get(name).byId(command);
            case "byTime":
                return pullers.get(name).byTime(command);
            case "trace":
                return pullers.get(name).trace(command);
            case "tool":
                return tool(command);
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private void stop(String name) {
        Sender sender = senders.remove(name);
        if (sender != null) {
            sender.stop();
        }
        Receiver receiver = receivers.remove(name);
        if (receiver != null) {
            receiver.stop();
        }
        Puller puller = pullers.remove(name);
        if (puller != null) {
            puller.stop();
        }
    }

    /** What mqadmin prints. */
    private synchronized String tool(JSONObject command) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setProperty(
            "rocketmq.namesrv.addr", command.getString("nameServers"));
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8.name()));
        try {
            MQAdminStartup.main0(command.getJSONArray("arguments").toArray(new String[0]), null);
        } finally {
            System.setOut(silent);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        return said.toString(StandardCharsets.UTF_8.name());
    }

    /** Tell of a message that a consumer has got. */
    void got(String consumer, JSONObject message) {
        JSONObject line = new JSONObject(true);
        line.put("to", consumer);
        line.put("message", message);
        print(line);
    }

    private void print(JSONObject line) {
        String text = JSON.toJSONString(line, SerializerFeature.DisableCircularReferenceDetect,
            SerializerFeature.WriteMapNullValue);
        synchronized (out) {
            out.println(text);
        }
    }
}
