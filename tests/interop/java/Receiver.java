// SPDX-License-Identifier: Apache-2.0

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** A consumer that messages are pushed to. */
final class Receiver {

    private final String name;
    private final Driver driver;
    private final DefaultMQPushConsumer consumer;
    private DefaultMQProducer replier;

    Receiver(JSONObject command, Driver driver) throws Exception {
        this.name = command.getString("name");
        this.driver = driver;
        String group = command.getString("group");
        consumer = new DefaultMQPushConsumer(group, command.getBooleanValue("trace"));
        consumer.setNamesrvAddr(command.getString("nameServers"));
        consumer.setInstanceName(command.getString("name"));
        consumer.setUseTLS(command.getBooleanValue("tls"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (command.containsKey("maxReconsumeTimes")) {
            consumer.setMaxReconsumeTimes(command.getIntValue("maxReconsumeTimes"));
        }
        if (command.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        if (command.getBooleanValue("reply")) {
            replier = new DefaultMQProducer(group + "-repliers");
            replier.setNamesrvAddr(command.getString("nameServers"));
            replier.start();
        }
        JSONArray subscriptions = command.getJSONArray("subscriptions");
        for (int i = 0; i < subscriptions.size(); i++) {
            JSONObject each = subscriptions.getJSONObject(i);
            String expression = each.getString("expression");
            consumer.subscribe(each.getString("topic"), "SQL92".equals(each.getString("type"))
                ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression));
        }
        if (command.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                take(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
    }

    void stop() {
        consumer.shutdown();
        if (replier != null) {
            replier.shutdown();
        }
    }

    /** One at a time is the default. A message says how often it is to fail. */
    private boolean take(List<MessageExt> messages) {
        MessageExt message = messages.get(0);
        driver.got(name, Messages.show(message));
        if (replier != null) {
            reply(message);
        }
        String times = message.getUserProperty("failTimes");
        return times == null || message.getReconsumeTimes() >= Integer.parseInt(times);
    }

    private void reply(MessageExt message) {
        try {
            byte[] body = ("reply to " + new String(message.getBody(), "UTF-8")).getBytes("UTF-8");
            replier.send(MessageUtil.createReplyMessage(message, body));
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }
}
