// SPDX-License-Identifier: Apache-2.0
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * RocketMQ's broker reads the tables of a folder, as it does at its start, prints what it
 * has found in them as one JSON object, and ends without a change to the folder.
 *
 * Arguments: folder, and the sizes of log files, queue files, slots and entries.
 */
public final class JavaTables {
    private JavaTables() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        try {
            out.println(JSON.toJSONString(
                tables(args),
                SerializerFeature.WriteNonStringKeyAsString));
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static JSONObject tables(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(args[2]));
        config.setMaxHashSlotNum(Integer.parseInt(args[3]));
        config.setMaxIndexNum(Integer.parseInt(args[4]));
        config.setHaListenPort(0);
        BrokerConfig broker = new BrokerConfig();
        broker.setEnablePropertyFilter(true);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(0);
        BrokerController controller =
            new BrokerController(broker, server, new NettyClientConfig(), config);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker does not load the folder");
        }
        JSONObject found = new JSONObject(true);
        found.put("topics", controller.getTopicConfigManager().getTopicConfigTable());
        found.put("groups",
            controller.getSubscriptionGroupManager().getSubscriptionGroupTable());
        found.put("offsets", new TreeMap<>(controller.getConsumerOffsetManager().getOffsetTable()));
        JSONObject filters = new JSONObject(true);
        for (String group
                : controller.getSubscriptionGroupManager().getSubscriptionGroupTable().keySet()) {
            for (ConsumerFilterData each
                    : controller.getConsumerFilterManager().getByGroup(group)) {
                filters.put(each.getTopic() + "@" + group, each.getExpression());
            }
        }
        found.put("filters", filters);
        found.put("delays", JSON.parse(((DefaultMessageStore) controller.getMessageStore())
            .getScheduleMessageService().encode()));
        return found;
    }
}
