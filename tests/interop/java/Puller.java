// SPDX-License-Identifier: Apache-2.0

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.trace.TraceView;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A consumer that fetches messages, and looks them up. */
final class Puller {

    private static final String TRACE = "RMQ_SYS_TRACE_TOPIC";

    @SuppressWarnings("deprecation")
    private final DefaultMQPullConsumer consumer;

    @SuppressWarnings("deprecation")
    Puller(JSONObject command) throws Exception {
        consumer = new DefaultMQPullConsumer(command.getString("group"));
        consumer.setNamesrvAddr(command.getString("nameServers"));
        consumer.setInstanceName(command.getString("name"));
        consumer.setUseTLS(command.getBooleanValue("tls"));
        consumer.start();
    }

    void stop() {
        consumer.shutdown();
    }

    JSONArray queues(JSONObject command) throws Exception {
        JSONArray found = new JSONArray();
        for (MessageQueue each : consumer.fetchSubscribeMessageQueues(command.getString("topic"))) {
            found.add(each.getQueueId());
        }
        return found;
    }

    private MessageQueue queue(JSONObject command) throws Exception {
        for (MessageQueue each : consumer.fetchSubscribeMessageQueues(command.getString("topic"))) {
            if (each.getQueueId() == command.getIntValue("queueId")) {
                return each;
            }
        }
        throw new IllegalArgumentException("no such queue: " + command);
    }

    JSONObject pull(JSONObject command) throws Exception {
        String expression = command.getString("expression");
        MessageSelector selector = "SQL92".equals(command.getString("type"))
            ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression);
        PullResult result = consumer.pull(
            queue(command), selector, command.getLongValue("offset"), command.getIntValue("count"));
        JSONObject shown = new JSONObject(true);
        shown.put("status", result.getPullStatus().name());
        shown.put("next", result.getNextBeginOffset());
        shown.put("min", result.getMinOffset());
        shown.put("max", result.getMaxOffset());
        shown.put("messages", show(result.getMsgFoundList()));
        return shown;
    }

    Object commit(JSONObject command) throws Exception {
        MessageQueue queue = queue(command);
        consumer.updateConsumeOffset(queue, command.getLongValue("offset"));
        consumer.persist(queue);
        return null;
    }

    long committed(JSONObject command) throws Exception {
        return consumer.fetchConsumeOffset(queue(command), true);
    }

    JSONArray byKey(JSONObject command) throws Exception {
        return show(consumer.queryMessage(
            command.getString("topic"), command.getString("key"), 64, 0, Long.MAX_VALUE)
            .getMessageList());
    }

    JSONObject byId(JSONObject command) throws Exception {
        return Messages.show(
            consumer.viewMessage(command.getString("topic"), command.getString("msgId")));
    }

    long byTime(JSONObject command) throws Exception {
        return consumer.searchOffset(queue(command), command.getLongValue("timestamp"));
    }

    JSONArray trace(JSONObject command) throws Exception {
        String msgId = command.getString("msgId");
        JSONArray views = new JSONArray();
        for (MessageExt each
                : consumer.queryMessage(TRACE, msgId, 64, 0, Long.MAX_VALUE).getMessageList()) {
            for (TraceView view : TraceView.decodeFromTraceTransData(msgId, each)) {
                views.add(JSON.toJSON(view));
            }
        }
        return views;
    }

    private static JSONArray show(Iterable<MessageExt> messages) {
        JSONArray shown = new JSONArray();
        if (messages != null) {
            for (MessageExt each : messages) {
                shown.add(Messages.show(each));
            }
        }
        return shown;
    }
}
