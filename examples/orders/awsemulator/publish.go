package awsemulator

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Limits of SNS, which the emulator does not know.
const (
	maxBatch       = 10
	defaultMaxSize = 256 << 10
)

// publishing is one entry of a PublishBatch.
type publishing struct {
	id, topic, message, group, deduplication string
	attributes                               map[string]attribute
}

type attribute struct{ dataType, text, base64 string }

func (p *publishing) size() int {
	n := len(p.message)
	for name, a := range p.attributes {
		n += len(name) + len(a.dataType) + len(a.text) + len(a.base64)/4*3
	}
	return n
}

// form is the Publish that the emulator understands. It takes what looks like a
// number or a truth value for one, and then not for text; so the message goes
// as one for all protocols, in JSON, and such a group gets an apostrophe.
func (p *publishing) form() url.Values {
	form := url.Values{
		"TopicArn": {p.topic}, "MessageStructure": {"json"}, "Message": {string(mustJSON(map[string]string{"default": p.message}))},
		"MessageGroupId": {asText(p.group)}, "MessageDeduplicationId": {asText(p.deduplication)},
	}
	n := 0
	for name, a := range p.attributes {
		n++
		at := fmt.Sprintf("MessageAttributes.entry.%d.", n)
		form.Set(at+"Name", name)
		form.Set(at+"Value.DataType", a.dataType)
		form.Set(at+"Value.StringValue", a.text)
		form.Set(at+"Value.BinaryValue", a.base64)
	}
	return form
}

func asText(value string) string {
	_, notNumber := strconv.ParseInt(value, 10, 64)
	_, notBool := strconv.ParseBool(value)
	if notNumber == nil || notBool == nil {
		return "'" + value
	}
	return value
}

// The entry of an answer, and an error, as SNS writes them.
type (
	successEntry struct{ Id, MessageId string }
	failedEntry  struct {
		Id, Code, Message string
		SenderFault       bool
	}
	batchResponse struct {
		XMLName    xml.Name       `xml:"http://sns.amazonaws.com/doc/2010-03-31/ PublishBatchResponse"`
		Successful []successEntry `xml:"PublishBatchResult>Successful>member"`
		Failed     []failedEntry  `xml:"PublishBatchResult>Failed>member"`
		RequestId  string         `xml:"ResponseMetadata>RequestId"`
	}
	snsError struct {
		XMLName xml.Name `xml:"ErrorResponse"`
		Type    string   `xml:"Error>Type"`
		Code    string   `xml:"Error>Code"`
		Message string   `xml:"Error>Message"`

		status int
	}
)

func (e *snsError) Error() string { return e.Code + ": " + e.Message }

// publishBatch answers PublishBatch, which the emulator lacks, through Publish.
func (f *front) publishBatch(w http.ResponseWriter, r *http.Request, form url.Values) {
	batch := parseBatch(form)
	if refusal := f.check(r.Context(), batch); refusal != nil {
		writeXML(w, refusal.status, refusal)
		return
	}
	answer := batchResponse{RequestId: uuid.NewString()}
	for _, p := range batch {
		id, refusal := f.publish(r.Context(), p)
		switch {
		case refusal == nil:
			answer.Successful = append(answer.Successful, successEntry{p.id, id})
		case refusal.Code == "NotFound": // the topic, which they share
			writeXML(w, refusal.status, refusal)
			return
		default:
			answer.Failed = append(answer.Failed, failedEntry{p.id, refusal.Code, refusal.Message, refusal.status < 500})
		}
	}
	writeXML(w, http.StatusOK, answer)
}

// check finds what SNS refuses a whole request for.
func (f *front) check(ctx context.Context, batch []publishing) *snsError {
	refuse := func(code, message string) *snsError {
		return &snsError{Type: "Sender", Code: code, Message: message, status: http.StatusBadRequest}
	}
	switch {
	case len(batch) == 0:
		return refuse("EmptyBatchRequest", "The batch request doesn't contain any entries.")
	case len(batch) > maxBatch:
		return refuse("TooManyEntriesInBatchRequest", "The batch request contains more entries than permissible.")
	}
	total := 0
	ids := map[string]bool{}
	for i := range batch {
		if ids[batch[i].id] {
			return refuse("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
		}
		ids[batch[i].id] = true
		total += batch[i].size()
	}
	if total > defaultMaxSize && total > f.maxSize(ctx, batch[0].topic) {
		return refuse("BatchRequestTooLong", "The length of all the messages put together is more than the limit.")
	}
	return nil
}

// maxSize is what the topic's attribute MaximumMessageSize says.
func (f *front) maxSize(ctx context.Context, topic string) int {
	var got struct {
		Entries []struct {
			Key   string `xml:"key"`
			Value string `xml:"value"`
		} `xml:"GetTopicAttributesResult>Attributes>entry"`
	}
	if f.call(ctx, "GetTopicAttributes", url.Values{"TopicArn": {topic}}, &got) == nil {
		for _, e := range got.Entries {
			if n, err := strconv.Atoi(e.Value); e.Key == "MaximumMessageSize" && err == nil {
				return n
			}
		}
	}
	return defaultMaxSize
}

func (f *front) publish(ctx context.Context, p publishing) (id string, refusal *snsError) {
	var got struct {
		ID string `xml:"PublishResult>MessageId"`
	}
	if strings.HasSuffix(p.topic, ".fifo") && p.group == "" {
		return "", &snsError{Code: "InvalidParameter", Message: "Invalid parameter: The MessageGroupId parameter is required for FIFO topics", status: http.StatusBadRequest}
	}
	refusal = f.call(ctx, "Publish", p.form(), &got)
	return got.ID, refusal
}

// call makes a request and reads its answer.
func (f *front) call(ctx context.Context, action string, form url.Values, out any) *snsError {
	away := func(err error) *snsError {
		return &snsError{Code: "InternalError", Message: err.Error(), status: http.StatusInternalServerError}
	}
	form.Set("Action", action)
	form.Set("Version", "2010-03-31")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.emulator, strings.NewReader(form.Encode()))
	if err != nil {
		return away(err)
	}
	req.Header.Set("Content-Type", formType)
	req.Header.Set("User-Agent", "api/sns#1") // tells the emulator which service is meant
	resp, err := f.client.Do(req)
	if err != nil {
		return away(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = xml.Unmarshal(body, out)
	}
	if err != nil {
		return away(err)
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	refusal := &snsError{status: resp.StatusCode}
	if err := xml.Unmarshal(body, refusal); err != nil {
		return away(fmt.Errorf("%s: %q", resp.Status, body))
	}
	return refusal
}

func writeXML(w http.ResponseWriter, status int, v any) {
	body, err := xml.Marshal(v)
	if err != nil {
		panic("awsemulator: " + err.Error()) // only values of our own making
	}
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// parseBatch reads PublishBatchRequestEntries.member.N.….
func parseBatch(form url.Values) []publishing {
	entries := numbered(form, "PublishBatchRequestEntries.member.")
	batch := make([]publishing, len(entries))
	for i, e := range entries {
		batch[i] = publishing{
			id: e.Get("Id"), topic: here(form.Get("TopicArn")), message: e.Get("Message"), attributes: map[string]attribute{},
			group: e.Get("MessageGroupId"), deduplication: e.Get("MessageDeduplicationId"),
		}
		for _, a := range numbered(e, "MessageAttributes.entry.") {
			batch[i].attributes[a.Get("Name")] = attribute{a.Get("Value.DataType"), a.Get("Value.StringValue"), a.Get("Value.BinaryValue")}
		}
	}
	return batch
}

// here is the topic in the region in whose name the emulator answers, whichever
// the client's is: it knows no other.
func here(topicARN string) string {
	parts := strings.SplitN(topicARN, ":", 5)
	if len(parts) == 5 {
		parts[3] = Region
	}
	return strings.Join(parts, ":")
}

// numbered returns the fields that are called PREFIX N.FIELD, one form for each
// N in their order.
func numbered(form url.Values, prefix string) []url.Values {
	byNumber := map[int]url.Values{}
	for name, values := range form {
		after, ok := strings.CutPrefix(name, prefix)
		number, field, _ := strings.Cut(after, ".")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		if byNumber[n] == nil {
			byNumber[n] = url.Values{}
		}
		byNumber[n][field] = values
	}
	all := make([]url.Values, 0, len(byNumber))
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		all = append(all, byNumber[n])
	}
	return all
}
