"""A page that shows a snapshot of GPU memory: the course of allocated and reserved bytes, segments and blocks at any moment of
it, and who holds what by lines of the program. One file without anything from elsewhere."""

import json

__all__ = ["page"]

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff;max-width:1200px}
h1{font-size:1.3em}h2{font-size:1.05em;margin:1.4em 0 .3em}
svg{width:100%;display:block;background:#f6f7f9;border:1px solid #d8dce2}
.seg{display:flex;height:18px;margin:2px 0;background:#eceff3;border:1px solid #c9ced6;position:relative}
.seg div{position:absolute;top:0;bottom:0;box-sizing:border-box;border-right:1px solid #fff}
.name{font:12px ui-monospace,monospace;color:#555;margin-top:6px}
table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left;font-variant-numeric:tabular-nums}
td.n{text-align:right}#tip{min-height:1.4em;font:12px ui-monospace,monospace}
input[type=range]{width:100%}
.free{background:#fff!important}.pending{background:repeating-linear-gradient(45deg,#bbb 0 4px,#eee 4px 8px)!important}
"""

# The trace is replayed backwards from the snapshot: that is what is known of the moment before the first event.
_SCRIPT = """
const data=JSON.parse(document.getElementById('data').textContent),$=id=>document.getElementById(id);
const unit=n=>{for(const u of['B','KiB','MiB','GiB','TiB']){if(Math.abs(n)<1024||u==='TiB')return(u==='B'?n:n.toFixed(1))+' '+u;n/=1024}};
const line=f=>f&&f.length?f[0].filename+':'+f[0].line:'(not known)';
const hue=t=>{let h=7;for(const c of t)h=(h*31+c.charCodeAt(0))%360;return h};
function moments(device){
  const events=data.device_traces[device]||[],live=new Map();let reserved=0;
  for(const s of data.segments)if(s.device===device){reserved+=s.mapped_size;
    for(const b of s.blocks)if(b.state==='active_allocated')live.set(b.address,{size:b.size,line:line(b.frames)})}
  let allocated=0;for(const b of live.values())allocated+=b.size;
  const course=[{a:allocated,r:reserved}];
  for(let i=events.length-1;i>=0;i--){const e=events[i];
    if(e.action==='alloc')allocated-=e.size;else if(e.action==='free_requested')allocated+=e.size;
    else if(e.action==='segment_alloc')reserved-=e.size;else if(e.action==='segment_free')reserved+=e.size;
    course.push({a:allocated,r:reserved})}
  return{events,course:course.reverse(),live}}
function at(m,n){const live=new Map(m.live);
  for(let i=m.events.length-1;i>=n;i--){const e=m.events[i];
    if(e.action==='alloc')live.delete(e.addr);else if(e.action==='free_requested')live.set(e.addr,{size:e.size,line:line(e.frames)})}
  return live}
function draw(device){
  const m=moments(device),n=m.course.length,w=1000,h=160,most=Math.max(1,...m.course.map(c=>c.r));
  const path=k=>m.course.map((c,i)=>(i?'L':'M')+(n>1?i/(n-1)*w:0).toFixed(1)+' '+(h-c[k]/most*(h-8)).toFixed(1)).join('')+(n>1?'':'L'+w+' '+(h-m.course[0][k]/most*(h-8)).toFixed(1));
  $('course').innerHTML='<path d="'+path('r')+'" fill="none" stroke="#8a94a6"/><path d="'+path('a')+'V'+h+'H0Z" fill="#3b82c455" stroke="#2563a8"/><line id="now" y1="0" y2="'+h+'" stroke="#c33"/>';
  $('time').max=n-1;$('time').value=n-1;$('time').oninput=()=>show(m,device,+$('time').value);show(m,device,n-1)}
function show(m,device,i){
  const c=m.course[i],live=at(m,i),x=m.course.length>1?i/(m.course.length-1)*1000:1000;
  $('now').setAttribute('x1',x);$('now').setAttribute('x2',x);
  const e=i>0?m.events[i-1]:null;
  $('moment').textContent='moment '+i+' of '+(m.course.length-1)+': '+unit(c.a)+' in tensors, '+unit(c.r)+' reserved'+(e?'; '+e.action+' '+unit(e.size)+' at '+line(e.frames):'');
  const last=i===m.course.length-1;let html='';
  for(const s of data.segments)if(s.device===device){
    html+='<div class=name>'+s.segment_type+(s.is_expandable?', expandable':'')+', stream '+s.stream+(s.segment_pool_id[1]?', graph pool '+s.segment_pool_id[1]:'')+': '+unit(s.mapped_size)+' at 0x'+s.address.toString(16)+'</div><div class=seg>';
    const put=(a,z,k,t,f)=>html+='<div class="'+k+'" style="left:'+(a-s.address)/s.total_size*100+'%;width:'+z/s.total_size*100+'%;background:hsl('+hue(f)+' 55% 62%)" data-tip="'+(unit(z)+' '+t+' '+f).replace(/"/g,'')+'"></div>';
    if(last){for(const b of s.blocks)if(b.state!=='unmapped')put(b.address,b.size,b.state==='inactive'?'free':b.state==='active_pending_free'?'pending':'',b.state,b.state==='inactive'?'':line(b.frames))}
    else for(const[a,b]of live)if(a>=s.address&&a<s.address+s.total_size)put(a,b.size,'','allocated',b.line);
    html+='</div>'}
  $('segments').innerHTML=html||'none';
  const by=new Map();for(const b of live.values()){const g=by.get(b.line)||{n:0,s:0};g.n++;g.s+=b.size;by.set(b.line,g)}
  $('lines').innerHTML='<tr><th>bytes<th>blocks<th>line</tr>'+[...by].sort((p,q)=>q[1].s-p[1].s).slice(0,30).map(([l,g])=>'<tr><td class=n>'+unit(g.s)+'<td class=n>'+g.n+'<td>'+l.replace(/[<&]/g,c=>c==='<'?'&lt;':'&amp;')+'</tr>').join('')}
document.body.addEventListener('mouseover',e=>{$('tip').textContent=e.target.dataset&&e.target.dataset.tip||''});
const devices=data.device_traces.length;$('device').innerHTML=[...Array(devices).keys()].map(d=>'<option>'+d+'</option>').join('');
$('device').onchange=()=>draw(+$('device').value);draw(0);
"""


def page(snapshot: dict) -> str:
    """The HTML page of what cuda.memory._snapshot gave."""
    # "</" would end the element that holds the data.
    data = json.dumps(snapshot).replace("</", "<\\/")
    return ("<!doctype html><html lang=en><meta charset=utf-8><title>GPU memory</title><style>" + _STYLE + "</style>"
            "<h1>GPU memory</h1><p>Device <select id=device></select></p>"
            "<h2>Allocated (filled) and reserved (line) over time</h2>"
            "<svg id=course viewBox='0 0 1000 160' preserveAspectRatio=none height=160></svg><input id=time type=range min=0 value=0>"
            "<div id=moment></div><h2>Segments and blocks</h2><div id=tip></div><div id=segments></div>"
            "<h2>Who holds the memory</h2><table id=lines></table>"
            f"<script type='application/json' id=data>{data}</script><script>{_SCRIPT}</script></html>\n")
