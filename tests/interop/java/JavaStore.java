// SPDX-License-Identifier: Apache-2.0
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own store, driven from outside: one JSON object a line comes in
 * ({"op": "put" | "batch" | "dump" | "clean" | "stop" | "halt", ...}), and one or more go
 * out. tests/interop/javastore.py is the other end.
 *
 * Arguments: folder, and the sizes of log files, queue files, slots and entries.
 */
public final class JavaStore {
    private static final int BLANK = 0xCBD43194;

    private final DefaultMessageStore store;
    private final PrintStream out;

    private JavaStore(String[] args, PrintStream out) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(args[2]));
        config.setMaxHashSlotNum(Integer.parseInt(args[3]));
        config.setMaxIndexNum(Integer.parseInt(args[4]));
        // Any port will do: nobody replicates.
        config.setHaListenPort(0);
        // After a crash, index again what the index may have lost.
        config.setMessageIndexSafe(true);
        this.out = out;
        this.store = new DefaultMessageStore(
            config, new BrokerStatsManager("interop", false), null, new BrokerConfig());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
    }

    public static void main(String[] args) {
        try {
            serve(args);
        } catch (Throwable problem) {
            // The store's threads would keep the process alive.
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void serve(String[] args) throws Exception {
        // The library logs to standard output; answers go to the real one.
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        JavaStore store = new JavaStore(args, out);
        store.answer("ready", true);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            store.run(JSON.parseObject(line, Feature.OrderedField));
        }
    }

    private void run(JSONObject command) throws Exception {
        switch (command.getString("op")) {
            case "put":
                put(command);
                break;
            case "batch":
                batch(command);
                break;
            case "dump":
                dump();
                break;
            case "clean":
                store.cleanUnusedTopic(
                    new HashSet<>(command.getJSONArray("topics").toJavaList(String.class)));
                store.cleanExpiredConsumerQueue();
                answer("cleaned", true);
                break;
            case "stop":
                store.shutdown();
                answer("stopped", true);
                System.exit(0);
                break;
            case "halt":
                Runtime.getRuntime().halt(9);
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private void put(JSONObject command) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, command);
        message.setPropertiesString(
            MessageDecoder.messageProperties2String(message.getProperties()));
        placed(store.putMessage(message));
    }

    private void batch(JSONObject command) throws Exception {
        List<Message> messages = new ArrayList<>();
        JSONArray parts = command.getJSONArray("messages");
        for (int i = 0; i < parts.size(); i++) {
            JSONObject part = parts.getJSONObject(i);
            Message message = new Message(command.getString("topic"), body(part));
            message.setFlag(part.getIntValue("flag"));
            properties(message, part);
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, command);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        placed(store.putMessages(batch));
    }

    private static void fill(MessageExt message, JSONObject command) throws Exception {
        message.setTopic(command.getString("topic"));
        message.setQueueId(command.getIntValue("queueId"));
        message.setBody(body(command));
        message.setFlag(command.getIntValue("flag"));
        message.setSysFlag(command.getIntValue("sysFlag"));
        message.setBornTimestamp(command.getLongValue("bornTimestamp"));
        message.setBornHost(address(command.getJSONArray("bornHost")));
        message.setStoreHost(address(command.getJSONArray("storeHost")));
        message.setReconsumeTimes(command.getIntValue("reconsumeTimes"));
        message.setPreparedTransactionOffset(command.getLongValue("preparedTransactionOffset"));
        properties(message, command);
    }

    private static void properties(Message message, JSONObject command) {
        JSONObject found = command.getJSONObject("properties");
        if (found != null) {
            for (Map.Entry<String, Object> each : found.entrySet()) {
                MessageAccessor.putProperty(message, each.getKey(), (String) each.getValue());
            }
        }
    }

    private static byte[] body(JSONObject command) {
        String text = command.getString("body");
        return text == null ? new byte[0] : Base64.getDecoder().decode(text);
    }

    private static InetSocketAddress address(JSONArray host) throws Exception {
        byte[] packed = new byte[host.getString(0).length() / 2];
        for (int i = 0; i < packed.length; i++) {
            packed[i] = (byte) Integer.parseInt(host.getString(0).substring(2 * i, 2 * i + 2), 16);
        }
        return new InetSocketAddress(InetAddress.getByAddress(packed), host.getIntValue(1));
    }

    private static JSONArray host(java.net.SocketAddress address) {
        InetSocketAddress found = (InetSocketAddress) address;
        StringBuilder hex = new StringBuilder();
        for (byte each : found.getAddress().getAddress()) {
            hex.append(String.format("%02x", each));
        }
        JSONArray pair = new JSONArray();
        pair.add(hex.toString());
        pair.add(found.getPort());
        return pair;
    }

    private void placed(PutMessageResult result) throws InterruptedException {
        JSONObject answer = new JSONObject(true);
        answer.put("status", result.getPutMessageStatus().name());
        if (result.getAppendMessageResult() != null) {
            answer.put("offset", result.getAppendMessageResult().getWroteOffset());
            answer.put("queueOffset", result.getAppendMessageResult().getLogicsOffset());
        }
        print(answer);
        // Each message has a store time of its own, so that a search by time has one answer.
        Thread.sleep(2);
    }

    private void dump() throws Exception {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        Set<List<String>> keys = new LinkedHashSet<>();
        records(keys);
        queues();
        for (List<String> each : keys) {
            key(each.get(0), each.get(1));
        }
        answer("end", store.getMaxPhyOffset());
    }

    private void records(Set<List<String>> keys) {
        int fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult found = store.selectOneMessageByOffset(offset, 8);
            ByteBuffer head = found.getByteBuffer();
            int size = head.getInt();
            int magic = head.getInt();
            found.release();
            if (magic == BLANK) {
                offset += fileSize - offset % fileSize;
                continue;
            }
            MessageExt message = store.lookMessageByOffset(offset);
            record(message);
            if (message.getProperty("UNIQ_KEY") != null) {
                keys.add(List.of(message.getTopic(), message.getProperty("UNIQ_KEY")));
            }
            if (message.getKeys() != null) {
                for (String key : message.getKeys().split(" ")) {
                    if (!key.isEmpty()) {
                        keys.add(List.of(message.getTopic(), key));
                    }
                }
            }
            offset += size;
        }
    }

    private void record(MessageExt message) {
        JSONObject line = new JSONObject(true);
        line.put("kind", "record");
        line.put("offset", message.getCommitLogOffset());
        line.put("size", message.getStoreSize());
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("bornHost", host(message.getBornHost()));
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("storeHost", host(message.getStoreHost()));
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("bodyCRC", message.getBodyCRC());
        line.put("body", message.getBody() == null
            ? "" : Base64.getEncoder().encodeToString(message.getBody()));
        Map<String, String> properties = message.getProperties();
        line.put("properties", properties == null ? Map.of() : new TreeMap<>(properties));
        line.put("msgId", message.getMsgId());
        print(line);
    }

    private void queues() {
        Map<String, ? extends Map<Integer, ConsumeQueue>> table = store.getConsumeQueueTable();
        for (Map.Entry<String, ? extends Map<Integer, ConsumeQueue>> topic
                : new TreeMap<>(table).entrySet()) {
            for (Map.Entry<Integer, ConsumeQueue> each : new TreeMap<>(topic.getValue()).entrySet()) {
                // One queue for each delay is there from the start, without files.
                if (each.getValue().getMaxOffsetInQueue() > 0) {
                    queue(topic.getKey(), each.getKey(), each.getValue());
                }
            }
        }
    }

    private void queue(String topic, int queueId, ConsumeQueue queue) {
        JSONObject line = new JSONObject(true);
        line.put("kind", "queue");
        line.put("topic", topic);
        line.put("queueId", queueId);
        line.put("min", store.getMinOffsetInQueue(topic, queueId));
        line.put("max", store.getMaxOffsetInQueue(topic, queueId));
        line.put("earliest", store.getEarliestMessageTime(topic, queueId));
        JSONArray entries = new JSONArray();
        JSONArray times = new JSONArray();
        JSONArray found = new JSONArray();
        for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue(); at++) {
            SelectMappedBufferResult buffer = queue.getIndexBuffer(at);
            ByteBuffer data = buffer.getByteBuffer();
            JSONArray entry = new JSONArray();
            entry.add(data.getLong());
            entry.add(data.getInt());
            entry.add(data.getLong());
            entries.add(entry);
            buffer.release();
            long time = store.getMessageStoreTimeStamp(topic, queueId, at);
            times.add(time);
            found.add(store.getOffsetInQueueByTime(topic, queueId, time));
        }
        line.put("entries", entries);
        line.put("times", times);
        line.put("byTime", found);
        print(line);
    }

    private void key(String topic, String key) {
        JSONObject line = new JSONObject(true);
        line.put("kind", "key");
        line.put("topic", topic);
        line.put("key", key);
        QueryMessageResult result = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        JSONArray offsets = new JSONArray();
        for (ByteBuffer each : result.getMessageBufferList()) {
            offsets.add(each.getLong(28));
        }
        result.release();
        line.put("offsets", offsets);
        line.put("lastTimestamp", result.getIndexLastUpdateTimestamp());
        line.put("lastOffset", result.getIndexLastUpdatePhyoffset());
        print(line);
    }

    private void answer(String name, Object value) {
        JSONObject line = new JSONObject(true);
        line.put(name, value);
        print(line);
    }

    private void print(JSONObject line) {
        out.println(JSON.toJSONString(line, SerializerFeature.DisableCircularReferenceDetect));
    }
}
