// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// GivenMessage is a message to be sent.
type GivenMessage struct {
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Flag       int32             `json:"flag"`
	Tags       string            `json:"tags"`
	Keys       []string          `json:"keys"`
	Delay      int               `json:"delay"`
	Properties map[string]string `json:"properties"`
}

func (given *GivenMessage) read() *primitive.Message {
	message := primitive.NewMessage(given.Topic, given.Body)
	message.Flag = given.Flag
	if given.Tags != "" {
		message.WithTag(given.Tags)
	}
	if len(given.Keys) > 0 {
		message.WithKeys(given.Keys)
	}
	if given.Delay > 0 {
		message.WithDelayTimeLevel(given.Delay)
	}
	for name, value := range given.Properties {
		message.WithProperty(name, value)
	}
	return message
}

func showMessage(message *primitive.Message) map[string]interface{} {
	return map[string]interface{}{
		"topic":      message.Topic,
		"body":       message.Body,
		"flag":       message.Flag,
		"tags":       message.GetTags(),
		"keys":       message.GetKeys(),
		"properties": message.GetProperties(),
	}
}

func showExt(message *primitive.MessageExt) map[string]interface{} {
	shown := showMessage(&message.Message)
	shown["queueId"] = message.Queue.QueueId
	shown["queueOffset"] = message.QueueOffset
	shown["msgId"] = message.MsgId
	shown["offsetMsgId"] = message.OffsetMsgId
	shown["sysFlag"] = message.SysFlag
	shown["bornTimestamp"] = message.BornTimestamp
	shown["storeTimestamp"] = message.StoreTimestamp
	shown["storeSize"] = message.StoreSize
	shown["reconsumeTimes"] = message.ReconsumeTimes
	return shown
}
