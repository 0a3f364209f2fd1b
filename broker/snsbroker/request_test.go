package snsbroker_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/postrider/postrider/broker/snsbroker"
	"github.com/postrider/postrider/outbox"
)

// fake is AWS as an HTTP client, without a network.
type fake struct {
	mu       sync.Mutex
	requests []*http.Request
	forms    []url.Values
	answer   func(form url.Values) (status int, body string)
}

func (f *fake) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.forms = append(f.requests, r), append(f.forms, form)
	status, text := f.answer(form)
	return &http.Response{StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"text/xml"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// well answers as AWS does when all is well.
func well(form url.Values) (int, string) {
	if form.Get("Action") == "GetCallerIdentity" {
		return 200, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws-cn:sts::123456789012:assumed-role/relay/i-1</Arn>` +
			`<UserId>x</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`
	}
	return 200, succeed(form)
}

func succeed(form url.Values) string {
	var members string
	for i := 1; ; i++ {
		id := form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.Id", i))
		if id == "" {
			break
		}
		members += "<member><Id>" + id + "</Id><MessageId>m" + id + "</MessageId></member>"
	}
	return publishAnswer(members, "")
}

func publishAnswer(successful, failed string) string {
	return `<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult><Successful>` + successful +
		`</Successful><Failed>` + failed + `</Failed></PublishBatchResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishBatchResponse>`
}

func (f *fake) config() aws.Config {
	return aws.Config{
		Region: "cn-north-1", HTTPClient: f, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}
}

// publish publishes to the topic.
func (f *fake) publish(t *testing.T, topic string, msgs ...outbox.Message) []outbox.Result {
	t.Helper()
	p, err := snsbroker.NewPublisher(snsbroker.PublisherConfig{
		Client: sns.NewFromConfig(f.config()), STS: sts.NewFromConfig(f.config()), Topic: topic,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p.Publish(t.Context(), msgs)
}

func messages(t *testing.T, n int) []outbox.Message {
	t.Helper()
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		id, err := outbox.NewID()
		if err != nil {
			t.Fatal(err)
		}
		msgs[i] = outbox.Message{ID: id, Topic: "orders", Key: fmt.Sprint("key ", i), Payload: []byte("{}")}
	}
	return msgs
}

// The account comes from STS, once, partition and region included; an ARN
// needs neither, and is reached in its own region.
func TestWhereATopicIs(t *testing.T) {
	for _, c := range []struct{ topic, arn, host string }{
		{"orders", "arn:aws-cn:sns:cn-north-1:123456789012:orders", "sns.cn-north-1.amazonaws.com.cn"},
		{"{topic}-events", "arn:aws-cn:sns:cn-north-1:123456789012:orders-events", "sns.cn-north-1.amazonaws.com.cn"},
		{"arn:aws-cn:sns:cn-northwest-1:210987654321:{topic}", "arn:aws-cn:sns:cn-northwest-1:210987654321:orders", "sns.cn-northwest-1.amazonaws.com.cn"},
	} {
		f := &fake{answer: well}
		p, err := snsbroker.NewPublisher(snsbroker.PublisherConfig{
			Client: sns.NewFromConfig(f.config()), STS: sts.NewFromConfig(f.config()), Topic: c.topic,
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if result := p.Publish(t.Context(), messages(t, 1))[0]; result.Err != nil || result.BrokerID != "m0" {
				t.Fatalf("%s: %+v", c.topic, result)
			}
		}
		asked := 0
		for i, form := range f.forms {
			if form.Get("Action") == "GetCallerIdentity" {
				asked++
				continue
			}
			region := strings.Split(c.arn, ":")[3]
			if form.Get("TopicArn") != c.arn || f.requests[i].URL.Host != c.host || !strings.Contains(f.requests[i].Header.Get("Authorization"), "/"+region+"/sns/") {
				t.Errorf("%s: sent to %s at %s: %s", c.topic, form.Get("TopicArn"), f.requests[i].URL.Host, f.requests[i].Header.Get("Authorization"))
			}
		}
		if want := strings.Count(c.topic, "arn:") ^ 1; asked != want {
			t.Errorf("%s: STS was asked %d times, want %d", c.topic, asked, want)
		}
	}
}

func TestGroupsAndDeduplication(t *testing.T) {
	const at = "PublishBatchRequestEntries.member.1."
	msgs := messages(t, 1)
	const group = "49ac5de219edae62f9fdeea0fc3f3af48fd832f22fac50820ac11174d6e068bd"
	id := msgs[0].ID.String()
	for _, c := range []struct {
		topic  string
		replay int64
		want   [2]string
	}{
		{"orders", 0, [2]string{"", ""}},
		{"orders.fifo", 0, [2]string{group, id}},
		{"orders.fifo", 7, [2]string{group, id + "-7"}}, // AWS has had it already, and must not drop it
	} {
		f := &fake{answer: well}
		msgs[0].Replay = c.replay
		if err := f.publish(t, c.topic, msgs...)[0].Err; err != nil {
			t.Fatal(err)
		}
		form := f.forms[len(f.forms)-1]
		if got := [2]string{form.Get(at + "MessageGroupId"), form.Get(at + "MessageDeduplicationId")}; got != c.want {
			t.Errorf("%s, replay %d: %v, want %v", c.topic, c.replay, got, c.want)
		}
	}
}

// Requests are cut at ten messages and at the bytes that a topic takes unasked;
// what has more goes alone.
func TestCutting(t *testing.T) {
	sized := func(kib ...int) []outbox.Message {
		msgs := messages(t, len(kib))
		for i := range msgs {
			msgs[i].Payload = []byte(strings.Repeat("x", kib[i]<<10))
		}
		return msgs
	}
	for _, c := range []struct {
		msgs []outbox.Message
		want string // messages of each request
	}{
		{messages(t, 25), "10 10 5"},
		{sized(100, 100, 100, 100), "2 2"},
		{sized(1, 300, 1), "1 1 1"},
		{sized(250, 1, 1, 250), "3 1"},
		{sized(900, 900), "1 1"},
	} {
		f := &fake{answer: well}
		p, err := snsbroker.NewPublisher(snsbroker.PublisherConfig{
			Client: sns.NewFromConfig(f.config()), Topic: "arn:aws-cn:sns:cn-north-1:123456789012:orders", Concurrency: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range p.Publish(t.Context(), c.msgs) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
		sizes := map[int]int{}
		for _, form := range f.forms {
			sizes[strings.Count(succeed(form), "<member>")]++
		}
		want := map[int]int{}
		for _, n := range strings.Fields(c.want) {
			var k int
			_, _ = fmt.Sscan(n, &k)
			want[k]++
		}
		if fmt.Sprint(sizes) != fmt.Sprint(want) {
			t.Errorf("requests of %v messages, want %v", sizes, want)
		}
	}
}
